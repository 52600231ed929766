/** Whether the dialog to choose another user is open, and whether it is offered. */
import { computed, signal } from "@preact/signals";
import { hello } from "../link/link";

export const seeAsOpen = signal(false);

/** Until the server has said what it offers, the page assumes that it does, so that the header does not move then. */
export const seeAsOffered = computed(() => hello.value?.features.includes("see-as") ?? true);
