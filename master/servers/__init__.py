"""Parameter servers, as the job's master sees them: which server has which ids (a wing).

slot_table.py    who holds which slot (values)
placement.py     what the table is to be next (pure)
slot_keeper.py   reads who serves, and writes the table, while this process leads
"""
