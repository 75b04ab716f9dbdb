# JupyterHub: profiles with a share of the GPU, chosen when a user's server is started.
# In jupyterhub_config.py: load_subconfig("@DATA@/adapters/jupyterhub/gpuarb_profiles.py")
PROFILES = {  # name: percent of the GPU's time, part of its memory
    "quarter": (25, "4Gi"),
    "half": (50, "8Gi"),
}


def options_form(spawner):
    return "<select name='profile'>%s</select>" % "".join("<option>%s</option>" % name for name in PROFILES)


def pre_spawn_hook(spawner):
    profile = spawner.user_options.get("profile", next(iter(PROFILES)))
    if profile not in PROFILES:
        raise ValueError("there is no profile %s" % profile)
    core, mem = PROFILES[profile]
    cmd = list(spawner.cmd)
    if cmd[0].endswith("gpuarb-run"):  # the server was started before
        cmd = cmd[cmd.index("--") + 1:]
    # The server and every kernel that it starts are one account.
    spawner.cmd = ["@BINDIR@/gpuarb-run", "--account", "jupyter-" + spawner.user.name,
                   "--core", str(core), "--mem", mem, "--"] + cmd


c.Spawner.options_form = options_form  # noqa: F821
c.Spawner.options_from_form = lambda form: {"profile": form["profile"][0]}  # noqa: F821
c.Spawner.pre_spawn_hook = pre_spawn_hook  # noqa: F821
