# Nomad's docker driver starts the container by gpuarb-runtime; the clients' plugin "docker" must allow it:
#   plugin "docker" { config { allow_runtimes = ["runc", "gpuarb"] } }
job "train" {
  type = "batch"
  group "train" {
    task "train" {
      driver = "docker"
      config {
        image   = "training:latest"
        runtime = "gpuarb"
      }
      env {
        GPUARB_CORE_LIMIT = "30"
        GPUARB_MEM_LIMIT  = "4Gi"
      }
    }
  }
}
