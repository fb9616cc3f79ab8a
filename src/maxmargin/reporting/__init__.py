"""Reporting: progress in a terminal, and plots. Nothing is imported here, since each module has its price."""
