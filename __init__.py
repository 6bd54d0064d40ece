"""elastic-run: this file marks the repository root for tools that resolve relative imports; it imports nothing."""
