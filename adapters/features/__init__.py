"""What columns of records become for a model (a wing): declared, fitted by one pass over the data, saved.

    errors              what is wrong with a declaration, or with columns
    declared            Numeric, Category, Cross, ... in Python, or as tables of a file (pure)
    sketches            quantiles, distinct and frequent values, in parts that merge (pure)
    summary             all that is to be known of the records, in parts that merge (pure)
    fitting             a declaration and a summary become fitted features (pure)
    inference           a declaration is inferred from a summary (pure)
    serving             fitted features make tensors of columns; also the `predict.py` of an export, with torch alone

How a job makes the summary, and what a model gets, is the affair of `models/`.
"""
