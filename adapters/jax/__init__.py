"""What JAX expects of its launcher."""
