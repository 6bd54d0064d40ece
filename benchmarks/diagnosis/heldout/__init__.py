"""The second half of the corpus that judges the diagnosis: scripts that its rules were not tuned to.

`cases` lists them with what is true of each, `scripts` has one for each. `README.md` says who wrote them and by which
rule they stay unseen.
"""
