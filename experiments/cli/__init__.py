"""The command line: options, and what was typed as domain values."""
