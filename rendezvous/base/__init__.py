"""What every room stands on: errors, frozen values, tasks, words."""
