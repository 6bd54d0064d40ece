"""A gRPC service is started by the rank as a child, loads for long, and the first call waits until it is ready."""

import multiprocessing
import socket
import time

import torch
import torch.distributed as dist


def serve(port: int) -> None:
    import concurrent.futures

    import grpc

    time.sleep(15)  # loads the reward model

    def score(request: bytes, context) -> bytes:
        return str(len(request)).encode()

    handlers = {"Score": grpc.unary_unary_rpc_method_handler(score)}
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("rewards.Rewards", handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reward = torch.zeros(1)
    if rank == 2:
        import grpc

        port = free_port()
        child = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
        child.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/rewards.Rewards/Score")
            reward[0] = float(call(b"hello", wait_for_ready=True, timeout=120))
        child.terminate()
        child.join()
    dist.all_reduce(reward)
    print(rank, reward.item(), flush=True)
    for _ in range(20):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
