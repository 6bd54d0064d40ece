"""Data sets without an end: what a source of records gives, and the shards of its offsets that a rank gets.

    contract            what a source has to give: a `StreamSource`
    watched_source      one source in one process: its ends as they grow, its records, and what is gone
    stream_leaser       a process's side of the ledger, where a wait is a look at the source
    stream_shards       what a script gets from `elastic_run.data.stream`
    kafka               the source of Kafka's topics, by confluent-kafka
    line_files          the source of files whose lines are records, and which grow or arrive in a folder

No module but `kafka` needs confluent-kafka, and that imports it when a topic is first looked at.
"""
