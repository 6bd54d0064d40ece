"""A worker that uses the records of a topic of Kafka, and writes down the values of each shard.

    told <round> <rank> <value> ...     it says next that they are done
    done <round> <rank> <value> ...     the master has that

It says `begun` after its third shard, and waits there until the test says `go`.
"""

import os
import sys

import puppet

import elastic_run

topic, servers, path = sys.argv[1:]
here = elastic_run.context()
strings = puppet.connect()
log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
source = elastic_run.data.KafkaTopic(topic, servers)
with elastic_run.data.stream("clicks", source, shard_size=20, follow=False, commit="ack") as data:
    for count, shard in enumerate(data):
        values = " ".join(record.value.decode() for record in shard.records)
        os.write(log, f"told {here.round} {here.rank} {values}\n".encode())
        shard.done()
        data.flush()
        os.write(log, f"done {here.round} {here.rank} {values}\n".encode())
        if count == 2:
            strings.hold("begun")
