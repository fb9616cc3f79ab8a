"""Solvers by marginals: excessive gap, exponentiated gradient, extragradient, SMO, L-BFGS."""
