"""`admissionregistration.k8s.io`: admission webhooks, and admission policies that this server evaluates itself."""
