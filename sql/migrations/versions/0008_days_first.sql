DROP INDEX daily_metrics_days;
DROP INDEX daily_metrics_key;
ALTER INDEX daily_metrics_days_first RENAME TO daily_metrics_key;
