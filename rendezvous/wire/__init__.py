"""How values travel: as checked JSON, in frames."""
