"""Where every shard of every file of events is on its way through the pipeline."""
