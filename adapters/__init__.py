"""What each framework needs from elastic-run; the only place that may import one."""
