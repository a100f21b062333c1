ALTER TABLE data_uploads ADD COLUMN traceparent text;
