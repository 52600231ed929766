/** Learn: the list of lessons, or the lesson that is open. */
import { route } from "../../router";
import { CourseList } from "./course";
import { Lesson } from "./lesson";
import { startLessons } from "./session";
import "./learn.css";

startLessons();

export default function Learn() {
  return route.value.params.lesson ? <Lesson /> : <CourseList />;
}
