"""Custom resources: kinds that users add by CustomResourceDefinitions.

Once its definition is established, a custom resource is a Resource with a Strategy and a Type like any other, and goes
through the same handlers, registry, cache and store. A definition that changes takes effect with the next request;
watches begun before end soon after. One that goes takes its objects with it first.
"""
