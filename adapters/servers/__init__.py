"""Parameter servers: embeddings that outgrow a machine, each record's gradient counted once (a wing).

job_servers.py    what an agent tells a worker, and a server that it keeps, of the job's servers (values)
specs.py          what a table is: dimension, optimizer, initializer (values)
requests.py       what servers are asked and answer (values of the wire)
server_events.py  what happens to a server, and what it wants done (values)
slot_sets.py      sets of slots, in memory and on the wire (pure)
rows.py           the rows of one table, found by id; the loops are in `kernels.py`
buffer_pool.py    which of them are in memory and which on disk; the loops are in `record_loops.py`
row_memory.py     what the rows of all tables may take in memory
record_file.py    rows on disk: records in a file without a name
row_use.py        which rows go, where there are too many (pure)
managed_table.py  a table in which ids get rows when they are frequent, and lose them again
wire_numbers.py   rows and gradients with half of their bits
string_ids.py     ids that are strings
marks.py          how far each shard of the data has been applied (pure): what makes a gradient count once
tables.py         all tables of one server, and what can be wrong with a request
slot_roles.py     what the slot table says of one server (pure)
push_queue.py     what a server acknowledges: backups first, one after the other (pure)
copies.py         slots on their way from one server to another (pure)
outbox.py         what a server has told others, and what they have not answered (pure)
server_machine.py one server, as a pure function of what happens
frames.py         a head in JSON and arrays, as they go over a connection
routing.py        which server answers for which id, by one slot table
line.py           a worker's connection to one server, which never waits
client.py         a worker's end: asks every server for its part, and again where the slot table has changed
table_source.py   where a worker learns of the slot table: its agent
parameter_rows.py parameters of a model as rows (pure)
first_values.py   what those begin with: the first worker's values
row_table.py      a table as a script declares it, and with numpy: below the layers of the frameworks
step_clock.py     how far this worker is, and whether it may go on while others are slower
session.py        what one worker process has on its way: its tables, and gradients with the records that they are of
server_links.py   the connections of a server, to workers and to other servers
part_files.py     a server's part of a checkpoint, as a file
part_saver.py     writes it while the server goes on
own_server.py     the tables of a process that has them itself, in place of the job's servers
export.py         whole tables, as files for other programs
compiling.py      has the loops compiled before a server is ready
server.py         the process
"""
