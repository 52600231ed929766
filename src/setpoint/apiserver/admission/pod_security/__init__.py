"""Pod security admission: the Pod security standards, enforced as the labels of a namespace request."""
