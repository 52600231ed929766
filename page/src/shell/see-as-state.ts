/** Whether the dialog to choose another user is open, and whether it is offered. */
import { computed, signal } from "@preact/signals";
import { hello } from "../link/link";

export const seeAsOpen = signal(false);

export const seeAsOffered = computed(() => hello.value?.features.includes("see-as") ?? false);
