/** On a narrow window the links at the top scroll sideways: the one of this page is in view. */

const links = document.querySelector(".top nav");
const current = links?.querySelector("[aria-current]");

if (current) {
  const { left, width } = current.getBoundingClientRect();
  const box = links.getBoundingClientRect();
  links.scrollLeft += left + width / 2 - box.left - box.width / 2;
}
