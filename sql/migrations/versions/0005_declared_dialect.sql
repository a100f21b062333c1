-- What the uploader says about the file's dates and numbers, which then need not say it themselves.
ALTER TABLE data_uploads
    ADD COLUMN date_order text CHECK (date_order IN ('dmy', 'mdy')),
    ADD COLUMN decimal_mark text CHECK (decimal_mark IN ('.', ','));
