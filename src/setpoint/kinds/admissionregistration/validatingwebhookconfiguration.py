"""ValidatingWebhookConfiguration: webhooks that may refuse what is written."""

from __future__ import annotations

from setpoint.kinds.admissionregistration.webhooks import WebhookConfigurationStrategy


class ValidatingWebhookConfigurationStrategy(WebhookConfigurationStrategy):
    mutating = False


STRATEGY = ValidatingWebhookConfigurationStrategy()
