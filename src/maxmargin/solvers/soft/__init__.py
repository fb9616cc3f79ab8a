"""Soft agreement constraints: SoftBCFW, Algorithm 1 of its paper, and DLPW, which that is compared with."""
