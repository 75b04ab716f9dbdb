"""Ray counts fractions of a GPU (num_gpus=0.3) and holds nobody to them. With this, workers keep to theirs:
    @ray.remote(**gpuarb_ray.share(0.3))
    def train(): ..."""

LIBRARY = "@PKGLIB@/libgpuarb-preload.so"


def share(fraction, memory=None, account=None):
    """Options of a task or an actor: what Ray counts, and the environment in which gpuarb holds its worker to it. Without an
    account each worker process is its own; with one, all that name it share the fraction."""
    if not 0.01 <= fraction <= 1:
        raise ValueError("a share is 0.01 to 1 of a GPU, not %r" % (fraction,))
    variables = {"LD_PRELOAD": LIBRARY, "GPUARB_CORE_LIMIT": str(round(fraction * 100))}
    if memory:
        variables["GPUARB_MEM_LIMIT"] = memory
    if account:
        variables["GPUARB_ACCOUNT"] = "ray-" + account
    return {"num_gpus": fraction, "runtime_env": {"env_vars": variables}}
