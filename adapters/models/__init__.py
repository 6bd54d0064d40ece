"""A model in four functions: trained, evaluated and used as jobs on leased shards of files (a wing).

    errors              what is wrong with a model file, or with what it was asked to do
    model_source        what can be told of a model file from its source (pure but for one file that is read)
    commands            what the commands are asked to do, as values
    strategy            how a model is trained, and why (pure)
    user_model          a model file's functions, called with checks
    featured            features in place of `feed`: the pass over the data, and a part of the state
    training            the ranks step together, and save the model with the position of the data
    saved_state         that state on disk, with the rows that belong to it, and the best one
    pieces              evaluation and predictions: a file for each shard
    outputs             what a module gives for records, as files
    auc                 a metric that is exact over all records
    validation          evaluation beside training
    history             what a training has come to so far, and when to stop
    event_file          the same for TensorBoard
    exporting           a trained model as a folder that needs torch alone
    worker              what each worker runs
    zoo_files, zoo/     models to begin with

The launcher's `model_job.py` makes a job of a command, and `elastic_run.models` is what its workers run.
"""
