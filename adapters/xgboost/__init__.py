"""What XGBoost expects of its launcher."""
