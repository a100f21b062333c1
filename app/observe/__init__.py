"""What the parts of an instance say of themselves at this moment, for whoever gathers metrics."""
