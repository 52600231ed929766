/** The part of this browser in a class. */
import { computed } from "@preact/signals";
import { hello } from "../link/link";
import { logical } from "./place";

function has(feature: string): boolean {
  return hello.value?.features.includes(feature) ?? false;
}

/** Whether this is the page of a learner. */
export const isLearner = computed(() => has("class-seat"));

/** Whether this is the page of a teacher. */
export const isTeacher = computed(() => has("class-teacher"));

/** Whether the teacher looks at the class as a whole: there is no cluster to show. */
export const atBoard = computed(() => isTeacher.value && !logical.value.startsWith("/seats/"));
