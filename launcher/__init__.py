"""The command line: options, the wiring of one agent, and what a person reads."""
