"""Generated code for the wires that we speak; each `.proto` says how to generate it again."""
