"""The command line. Modules here import nothing heavy at their top: ``--help`` must answer at once."""
