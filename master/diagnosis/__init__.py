"""Why a job stands still or is slow: what agents tell of their workers, and who is named for it."""
