"""What workers print: onto the terminal and into files."""
