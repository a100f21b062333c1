DROP INDEX campaigns_by_name;
ALTER INDEX campaigns_name_first RENAME TO campaigns_by_name;
