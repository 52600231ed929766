"""MutatingWebhookConfiguration: webhooks that may change what is written."""

from __future__ import annotations

from setpoint.kinds.admissionregistration.webhooks import WebhookConfigurationStrategy


class MutatingWebhookConfigurationStrategy(WebhookConfigurationStrategy):
    mutating = True


STRATEGY = MutatingWebhookConfigurationStrategy()
