"""An `hvd.elastic` script of TensorFlow and legacy Keras, as Horovod's users write it: it knows nothing of elastic-run.

Each step takes the same records whatever the number of workers. At the steps that its arguments name (after the folder)
all workers wait for a file `go-STEP`.
"""

import os
import sys
import time
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TMPDIR"] = sys.argv[1]  # where TensorFlow leaves files when it is killed

import bare_keras  # noqa: F401
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

STEPS = 20
FOLDER, GATES = Path(sys.argv[1]), {int(step) for step in sys.argv[2:]}


def say(words: str) -> None:
    """Prints one line, which another worker's cannot be in the middle of."""
    os.write(1, f"{words}\n".encode())


hvd.init()
tf.keras.backend.set_floatx("float64")
model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(4,))])
model.set_weights([np.arange(4.0).reshape(4, 1) + hvd.rank()])  # so that whoever has no state is seen
optimizer = tf.keras.optimizers.legacy.SGD(1 / 1024, momentum=0.5)
optimizer.apply_gradients(
    [(tf.zeros_like(weight), weight) for weight in model.trainable_variables]
)  # it has variables now
state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
state.register_reset_callbacks([lambda: say(f"reset {os.getpid()}: rank {hvd.rank()} of {hvd.size()}")])
say(f"begin {os.getpid()}: rank {hvd.rank()} of {hvd.size()}")


def pass_gate(state: hvd.elastic.TensorFlowKerasState) -> None:
    """Waits until all workers see this step's file."""
    said = False
    while True:
        open_ = tf.constant([int((FOLDER / f"go-{state.step}").exists())])
        if int(hvd.allreduce(open_, op=hvd.Min, name="gate")[0]):
            return
        if not said:
            say(f"gate {os.getpid()}: rank {hvd.rank()} of {hvd.size()} at step {state.step}")
            said = True
        state.check_host_updates()
        time.sleep(0.05)


@hvd.elastic.run
def train(state: hvd.elastic.TensorFlowKerasState) -> None:
    """All steps."""
    while state.step < STEPS:
        if state.step in GATES:
            pass_gate(state)
        records = range(hvd.rank(), 8, hvd.size())
        features = tf.constant([[(state.step + record * k) % 3 for k in range(4)] for record in records], tf.float64)
        wanted = tf.constant([[record] for record in records], tf.float64)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(features) - wanted) ** 2)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        state.step += 1
        state.commit()


train(state)
if hvd.rank() == 0:
    say(f"result {' '.join(float(number).hex() for number in model.get_weights()[0][:, 0])}")
