"""Data files on the command line, one file a format: a function ``read`` each, which `maxmargin.cli.data` finds by name."""
