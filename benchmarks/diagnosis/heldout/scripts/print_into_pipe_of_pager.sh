#!/bin/bash
# Shows the first lines of a rank's output and keeps the terminal quiet after them.
export VERBOSE_RANK=2
show() {
    for _ in $(seq 10); do
        IFS= read -r line || return
        echo "rank $RANK: ${line:0:60}"
    done
    while kill -0 $$ 2>/dev/null; do sleep 1; done
}
"$@" | show
