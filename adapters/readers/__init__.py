"""Readers with an index: the records of CSV, Parquet, ORC and Arrow files, and of formats of others, by their numbers.

    contract            what a format has to give: a `RecordReader`, and what it returns
    plugins             which class reads which files: ours, and those of installed packages
    found_files         from what a script names to files, and whether one has changed
    opened              what a script gets from `elastic_run.data.open`
    csv_split           where the records of a CSV file begin (pure)
    csv_masks           the same, 64 bytes at a time, as machine code
    csv_index           where a record begins in each block of a file: made in parallel, kept beside the data
    csv_values          from the text of records to columns
    csv_reader          the `RecordReader` of CSV files
    arrow_readers       those of Parquet, ORC and Arrow files, by pyarrow

Only `opened` and what it needs are loaded before a script opens files; no module but the last needs pyarrow.
"""
