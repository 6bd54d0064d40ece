"""Jobs whose nodes the master starts, on a Kubernetes cluster.

command.py        `elastic-job`: its verbs, and which function each is
arguments.py      its command line, and the cluster that it names
request.py        what is to be submitted, as one value
submit.py         `elastic-job submit`: what is made in the cluster for a job
control.py        scale, suspend, resume, cancel, delete
progress.py       list, status, wait: how a job is
unstarted.py      why a job's master has not begun, and its end where it never will
pod_logs.py       logs: what its pods have printed
operator.py       the same for a resource of kind ElasticJob
managed_nodes.py  in the master's process: starts, replaces and stops nodes (`elastic-run master --platform=kubernetes`)
master_pod.py     the same where that process is a pod, and what it writes about its job
"""
