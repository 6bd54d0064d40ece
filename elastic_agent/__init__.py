"""One per machine: decides, starts, watches and stops the workers."""
