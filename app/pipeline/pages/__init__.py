"""What operators see of the pipeline."""
