"""TensorFlow, behind the contract."""
