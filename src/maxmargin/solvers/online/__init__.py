"""Online methods: the stochastic subgradient and the averaged perceptron."""
