"""What is common to all solvers: the solver and its main loop, the run and its state, results, checkpoints, Ctrl-C."""
