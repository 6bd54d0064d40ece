#!/bin/sh
# As many teams start their training: some setting up, then Python as a child, then a line about its end.
export OMP_NUM_THREADS=1
echo "run.sh: starting $*"
"$@"
status=$?
echo "run.sh: ended with $status"
exit $status
